"""Experiments on the demonstrator: the fix ladder, its runs, its verdicts and its tables."""
