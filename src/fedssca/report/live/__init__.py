"""The live page: a local web server that lists, draws, starts, stops and resumes runs.

command.py   `fedssca ui`
server.py    what the page asks for, and the answers
guard.py     who may ask: a token, this machine's own name, a strict policy
shelf.py     the folder of runs: names, a fast list
watch.py     runs as they grow, as events
jobs.py      runs that the page starts: processes that outlive it
form.py      the fields of a run, and what is wrong with them
static/      the page itself: plain scripts, no build step
"""
