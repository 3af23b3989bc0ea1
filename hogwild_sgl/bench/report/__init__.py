"""From the records of a run to tables, plots and pages."""
