"""A fair comparison: every method is tuned with the same budget before the methods are compared.

comparison  the search for settings, and the runs with the best settings
training    one training of the comparison, and how many of them are carried out
table       the result as a table, sentences and a figure
limits      the same with a limit on the training cost, and with methods that keep limits
limit_pages its table, sentences and figure
statements  checks the paper's statements about speed with the tuned methods
"""
