"""The definition of what a worker attends to, computed by brute force in float64.

Nothing here imports the packages under test: an error there cannot repeat itself here.
"""
