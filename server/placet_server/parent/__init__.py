"""Several server processes on one machine, and the one that started them: `placet serve --processes N`.

parent       owns the store, the ports and the children's lives; serves no call
child        one child as the parent sees it: started, watched, started again
child_main   the child's own side: a server that ends with its parent
setting      from the parent's configuration to a child's environment
reservation  the main port, held for the children
metrics      the children's metrics as one text
"""
