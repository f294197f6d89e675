"""What `fedssca.flower` offers to an existing Flower app.

strategy       the strategy of its server
limited_loss   the loss of its clients
"""
