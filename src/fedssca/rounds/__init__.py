"""One round, wherever it happens: the loop, the clients, and the ways in which messages meet.

Nothing in this folder knows a privacy mechanism, a configuration file or an engine.
"""
