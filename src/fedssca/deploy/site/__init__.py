"""What a site runs: it reads its data, describes it, and answers the phases of a round."""
