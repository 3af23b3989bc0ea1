"""The plan in C++ on a CPU."""
