"""What ``bench/speed.py`` measures, and how."""
