"""What a report shows, one module a topic: its table and, where the records can fill it, its figure."""
