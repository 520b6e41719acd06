"""The paper's figures, published numbers and claims, and how runs are compared with them.

May import `errors`, `experiments`, `report` and `theory`. `report` never imports this package.
"""
