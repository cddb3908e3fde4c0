"""The report as one offline page (`page.page`), and as a picture for chats and tickets (`picture.picture`)."""
