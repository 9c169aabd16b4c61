"""Fan-outs: children of a node, which are tasks of its run (`items`) or runs of their own (`runs`), counted in `Node.fan` (rulings F1 to F5).

`expanding` freezes the collection, `beginning` says how many children may begin, `counting` when enough have ended and what that makes of the node;
`rounds` is what every tick does for all of them. Nothing here is O(width) per child, and nothing but `rounds` knows kinds of steps.
"""
