"""What runs inside SGLang: the plugin, teams, views, the radix tree and the routes."""
