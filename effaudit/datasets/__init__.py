"""Datasets, one file each; `effaudit.plugins` finds them by file name."""
