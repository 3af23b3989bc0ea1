"""Teams in the server process: routes, requests, and what it knows of each team."""
