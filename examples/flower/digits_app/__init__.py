"""A Flower app that trains a convolutional network on images of digits."""
