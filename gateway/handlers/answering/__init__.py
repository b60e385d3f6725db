"""Parts that handlers of several groups use: the API type, limits of time and size, states and answers that APIs share."""
