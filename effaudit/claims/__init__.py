"""The verdicts: what holds of the two papers' claims when their models are trained and audited here."""
