"""Serve the daemon's API: HTTP/JSON and one websocket on a unix socket."""
