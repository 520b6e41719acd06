"""The paper's figures, published numbers and claims, and how runs are compared with them.

May import `experiments` and `report`. `report` never imports this package.
"""
