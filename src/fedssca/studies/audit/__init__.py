"""The privacy audit: what each observer of a run can infer about the rows behind a message.

audited_run  a run that is built but not trained: its first batches and the known gradients
message      what an observer receives under each protection
observers    who receives which message, in runs that split rows and in runs that split columns
count        unknowns against equations, by number and by the rank of the Jacobian
membership   the membership test: is a given row among those behind a message?
inversion    gradient inversion: the rows themselves, reconstructed from a message
score        how good a reconstruction is
verdict      open, at risk or protected, and the setting that would change it
report       the table and the content of audit.json
vocabulary   the observers, phases and levels that appear in audit.json
figure       the picture audit.png
canaries     the audit of epsilon: canary rows in the mechanism of a run, and an attack on them
one_run      the lower bound on epsilon that the attack proves
"""
