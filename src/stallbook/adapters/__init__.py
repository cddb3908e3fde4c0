"""Hooks that feed the recorder from inside engines that know nothing of it.

What any engine needs stands here once: finding hooks by feature and failing open (`hooks`), waiting for a module
(`imports`), a process's part of the log (`process`), cheap stamps (`stamps`), what hooks saw and when it is written
(`later`, `noter`), a frontend's requests and tokens (`frontend`), device time (`device`), settings (`settings`). An
engine's own package says only what that engine calls things, and where.
"""
