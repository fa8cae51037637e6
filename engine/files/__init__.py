"""Files: safe reading of untrusted ones, atomic writing, names in messages, the cache folder."""
