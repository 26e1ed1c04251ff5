"""Which backends there are: pools of interchangeable ones, and how they are found."""
