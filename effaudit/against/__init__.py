"""Which of two revisions is faster, timed in turns in one job."""
