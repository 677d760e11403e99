"""Draw the plots of reports, figures and commands with matplotlib, all in one style."""
