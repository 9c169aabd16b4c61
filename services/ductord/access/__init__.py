"""Credentials at work (ruling N1): `keys` says who calls and whether they may, `minting` makes, replaces and ends keys. Who has none is let in nowhere."""
