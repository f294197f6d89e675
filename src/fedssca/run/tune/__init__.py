"""`fedssca tune`: search for the settings of each method, with the same budget for every method.

space       the settings of each method and the ranges in which they are searched
trial       one training with drawn settings, and its result
validation  the training rows that are held out to assess trials
search      the search itself
folder      the files of a search
session     a search that fills a folder and can be continued
"""
