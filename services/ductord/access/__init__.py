"""Credentials at work (ruling N1): `keys` says who calls and whether they may (it looks them up by `lookups`, holds back who fails too often by `limits`, and
puts down what was refused by `trail`), `minting` makes, replaces and ends keys (`drafts` are those to be made, `kept` those that are stored). Who has none is
let in nowhere."""
