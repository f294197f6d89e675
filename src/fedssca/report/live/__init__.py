"""The live page: a local web server that lists, draws, starts, stops and resumes runs.

server.py      the addresses that the page requests, and the answers
access.py      which requests are answered: those with the token, to this machine's own name
folder.py      the folder of runs: their names, and a list that is fast for thousands of runs
events.py      what is new in runs, as server-sent events
processes.py   runs that the page started: processes that go on without the page
form.py        the fields of a new run, and what is wrong with them
static/        the scripts and the style of the page
"""
