"""The paper's figures, published numbers and claims, and how runs are compared with them."""
