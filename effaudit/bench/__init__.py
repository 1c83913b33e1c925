"""The tool's own benchmarks: `python -m effaudit.bench NAME`."""
