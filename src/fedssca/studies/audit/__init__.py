"""Where a user stands: what each observer of a run can work out about the rows behind a message.

scene        a run set up without training: its first batches, and what an observer knows
view         what an observer is sent, under each protection
count        unknowns against equations, counted and by the rank of the Jacobian
membership   is a given row among those behind a message?
invert       the rows themselves, from a message
observers    who sees what, in a run that holds rows or columns
verdict      open, at risk or protected, and the setting that would change it
report       the table, audit.json, the picture
"""
