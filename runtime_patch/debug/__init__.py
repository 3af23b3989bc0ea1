"""Tools beside the server: replaying traces, planting faults. Never on a request's way."""
