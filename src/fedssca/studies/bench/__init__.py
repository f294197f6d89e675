"""`fedssca bench`: how fast a round is, against the hardware, against peers, and as it grows."""
