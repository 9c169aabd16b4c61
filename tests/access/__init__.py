"""Keys and scopes (rulings N1, N2, N3; field case TN-01)."""
