"""How hosts and servers are looked at: the program that is sent there, the line to it, and what its answers mean."""
