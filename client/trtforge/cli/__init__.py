"""The command `trtforge`: our client for people and scripts; the service's own commands join by entry points."""
