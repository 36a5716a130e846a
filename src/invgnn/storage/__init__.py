"""Files: canonical encoding, containers, encryption, atomic writes and tables of results."""
