"""How weighted updates become one."""
