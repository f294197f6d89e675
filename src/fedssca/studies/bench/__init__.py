"""`fedssca bench`: the time of a round, compared with the hardware, with peers, and as it grows."""
