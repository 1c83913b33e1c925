"""effaudit tells whether adaptive transformers really save compute."""
