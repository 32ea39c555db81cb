"""Tables, views and migrations."""
