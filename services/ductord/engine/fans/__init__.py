"""Fan-outs: children of a node, which are tasks of its run (`items`) or runs of their own (`runs`), counted in `Node.fan` (rulings F1 to F5).

`expanding` freezes the collection, `beginning` begins children at the end of a tick, as many as may begin, and `counting` ends the node when all have
ended. Nothing here is O(width) per child.
"""

from ductord.engine.fans.beginning import fill
from ductord.engine.fans.items import judge

__all__ = ["fill", "judge"]
