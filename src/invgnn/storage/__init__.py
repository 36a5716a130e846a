"""Files: canonical encoding, containers, encryption, atomic writes, tables."""
