"""What `make docs` needs besides MkDocs: pages made from files outside docs/, and fixes for docstrings."""
