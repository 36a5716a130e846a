"""The report of a benchmark: tables, figures and a page, all of them functions of the rows."""
