"""Runs across machines: each site keeps its data, and the rounds travel as envelopes.

site/      what a site runs: reading its data, describing it, answering the phases of a round
server/    what the server runs: asking the sites, adding up, evaluating, recording the run
engines/   what carries the envelopes and starts the processes; `engine` states what it must offer

The modules beside these rooms hold what both sides must agree on (`census`, `stages`, `sums`,
`alignment`, `outcome`) and what the submitting side does (`project`, `submit`, `predict`, `local`).
`site` and `server` do not import each other, and only `engines` knows which engine runs.
"""
