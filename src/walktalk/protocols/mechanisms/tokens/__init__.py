"""Walks: models that go from node to node as tokens. An algorithm of walks is a `rule.WalkRule`; the rest is here."""
